"""SFT in one of several processes that share the weights (FSDP2): torchrun -m orce.plan.trial.sharded TASK.json FOLDER.

TASK.json has {examples, settings}, the arguments of orce.training.sft.train.
"""

import json
import sys
from pathlib import Path

from orce.training import sft

if __name__ == "__main__":
    task = json.loads(Path(sys.argv[1]).read_text())
    sft.train(task["examples"], task["settings"], sys.argv[2])
