# The configuration: config.yaml, then the files of --configfile; the last one wins. An unreadable file is reported with
# its name and line. common.smk checks the content.
import sys
from pathlib import Path

# Not workflow.basedir: that is another folder where workflow/Snakefile was called.
CHECKOUT = Path(str(workflow.current_basedir)).parents[1]
sys.path.insert(0, str(CHECKOUT / "workflow"))

from orce.config import load
from orce.errors import BadInput

try:
    if Path("config.yaml").exists():
        load.mapping("config.yaml")
except BadInput as error:
    raise WorkflowError(str(error))


configfile: "config.yaml"


if unset := load.incomplete(config, Path.cwd()):
    raise WorkflowError(unset)

if workflow.is_main_process:
    given = [Path(path) for path in workflow.overwrite_configfiles]
    try:
        for path in given:
            if path.suffix != ".json":
                load.mapping(path)  # Snakemake takes the last of two equal keys
    except BadInput as error:
        raise WorkflowError(str(error))
    for note in load.presets_given_late(given, CHECKOUT / "config"):
        logger.warning(note)
