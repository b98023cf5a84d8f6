import json
import sys
from pathlib import Path

from orce.errors import explain
from orce.runtime import process

process.importing()
from orce.training import sft

settings = json.loads(Path("training.json").read_text())
prompt = lambda i: [{"role": "user", "content": f"Question: {i} + {i}?\nAnswer: {2 * i}"}]
try:
    sft.train([{"prompt": prompt(i), "percent": 100 * (i % 2)} for i in range(8)], settings, sys.argv[1])
except OSError as error:
    sys.exit(explain(error))
