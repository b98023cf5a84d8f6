import inspect
import json
import sys

from orce.__main__ import main

library, files, before = sys.argv[1], [], []


def entered(frame, event, arg):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(library) or not code.co_flags & inspect.CO_OPTIMIZED:
        return
    files.append(code.co_filename)
    if code.co_name == "read_ids" and not before:
        before.extend(set(files))


sys.setprofile(entered)
main(sys.argv[2:])
sys.setprofile(None)
print(json.dumps([len(before), len(set(files))]))
