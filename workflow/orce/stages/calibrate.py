"""Calibrate a method's confidences: fit a map on another data set's items, never on the test set, and apply it."""

from typing import Any

from orce import methods, tasks
from orce.artefacts import store
from orce.metrics.calibrate import fitting_items, in_both
from orce.metrics.summary import stated_records
from orce.records import Confidence
from orce.runtime.progress import say
from orce.stage_settings import Calibrate

Settings = Calibrate


def add_arguments(parser):
    parser.add_argument("--fit-prompts", required=True, help="frozen prompts of the data set to fit on")
    parser.add_argument("--fit-confidences", required=True, help="the method's confidences there")
    parser.add_argument("--prompts", required=True, help="frozen test prompts")
    parser.add_argument("--confidences", required=True, help="the method's confidences in the test answers")
    parser.add_argument("--out", required=True)
    parser.add_argument("--fit", required=True, help="written: the fitted parameters, and what they were fitted on")


def run(settings: Calibrate, args):
    calibration, task = methods.load(settings.module), tasks.get(settings.task)
    shared = in_both(task, args.prompts, args.fit_prompts)
    found = fitting_items(args.fit_confidences, shared)
    parameters = calibration.fit(*map(list, zip(*found, strict=True)))
    say(f"[{settings.label}] fitted on {len(found)} items: {parameters}")
    records = [mapped(one, calibration, parameters) for one in stated_records(args.confidences)]
    store.write(args.out, records, settings)
    counts = {"n": len(found), "n_in_test_set": len(shared), "parameters": parameters}
    fitted = {"calibration": settings.calibration, "fitted_on": args.fit_confidences}
    store.write_object(args.fit, fitted | counts, settings)


def mapped(record: Confidence, calibration, parameters: dict[str, Any]) -> Confidence:
    """The record with its calibrated confidence; `raw` is the confidence below. An unread one stays unread, and counted."""
    below = record.confidence
    confidence = None if below is None else float(calibration.apply(parameters, [below])[0])
    return record.mapped(confidence, below, record.retried is True)
