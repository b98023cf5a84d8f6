import sys

from orce.artefacts import files
from orce.errors import explain

items = list(range(40))
try:
    for done in files.in_chunks(
        "disk/out.jsonl", items, 4, "tag", lambda chunk: [{"id": i, "raw": "x" * 3600} for i in chunk]
    ):
        print(done, end=" ")
except OSError as error:
    sys.exit(explain(error))
