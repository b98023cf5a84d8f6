"""Metrics of one method that others report and the paper does not: log loss, AUGRC, PRR, AUARC, adaptive and smooth ECE."""

from orce.evaluation import stated
from orce.evaluation import summary as cell_summary
from orce.runtime import contents, files
from orce.steps import add_settings, settings


def add_arguments(parser):
    add_settings(parser)
    parser.add_argument("--confidences", required=True)
    parser.add_argument("--out", required=True)


def run(args):
    options = settings(args.settings)
    found = stated.read(args.confidences, options["unparsed_confidence"])
    values = cell_summary.summarise_extra(found.confidence, found.correct, options["bootstrap"], options["seed"])
    cell = {key: options[key] for key in ("dataset", "model", "method")}
    files.write_json(args.out, cell | values | {"confidences": files.file_digest(args.confidences)})
    contents.seal(args.out)
