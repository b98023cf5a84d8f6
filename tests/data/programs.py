"""What tests run in a process of its own: programs.py NAME ARGUMENTS. Each imports what it needs, so that its start is a stage's."""

import inspect
import json
import os
import signal
import sys
import time


def entered(library, *argv):
    """Prints how many files of the library a command enters, before the model's first forward pass and in all."""
    from orce.__main__ import main

    files, before = [], []

    def enter(frame, event, arg):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(library) or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        files.append(code.co_filename)
        if code.co_name == "read_ids" and not before:
            before.extend(set(files))

    sys.setprofile(enter)
    main([*argv])
    sys.setprofile(None)
    print(json.dumps([len(before), len(set(files))]))


def chunks(out):
    """40 large records, four in a chunk."""
    from orce.artefacts import files
    from orce.errors import explain

    try:
        for done in files.in_chunks(
            out, list(range(40)), 4, "tag", lambda chunk: [{"id": i, "raw": "x" * 3600} for i in chunk]
        ):
            print(done, end=" ")
    except OSError as error:
        sys.exit(explain(error))


def slow_chunks(out):
    """60 records, two in a chunk; out.log names each chunk that is begun."""
    from orce.artefacts import files

    def work(chunk):
        with open(f"{out}.log", "a") as log:
            print(chunk[0], file=log)
        time.sleep(0.02)
        return [{"id": i} for i in chunk]

    list(files.in_chunks(out, list(range(60)), 2, "t", work))


def training(settings, out):
    from orce.errors import explain
    from orce.runtime import process

    process.pause_collection()
    from orce.training import sft

    asked = [[{"role": "user", "content": f"Question: {i} + {i}?\nAnswer: {2 * i}"}] for i in range(8)]
    with open(settings) as handle:
        options = json.load(handle)
    try:
        sft.train([{"prompt": prompt, "percent": 100 * (i % 2)} for i, prompt in enumerate(asked)], options, out)
    except OSError as error:
        sys.exit(explain(error))


def killed_half_way(path):
    """A writer that is killed when it has written a part of its file."""
    from orce.artefacts import files

    with files.atomic(path) as handle:
        handle.write("{")
        handle.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def killed_write(at):
    """A writer that is killed where it would give a file its name."""
    from orce.artefacts import store

    kept = os.replace

    def replace(source, target):
        if str(target).endswith(at):
            os.kill(os.getpid(), signal.SIGKILL)
        kept(source, target)

    os.replace = replace
    store.write("results/sums/small/samples.jsonl", [{"id": 1}])


def loaded(*sources):
    """Loads models, each from its source, and prints the revision of each or why it is refused."""
    from orce.errors import BadInput
    from orce.llm import language_model
    from orce.settings.stage import Model, from_mapping

    for source in sources:
        settings = {"source": json.loads(source), "dtype": "float32", "device": "cpu"}
        try:
            language_model.load(settings)
            print(language_model.revision_of(from_mapping(Model, settings)))
        except BadInput as error:
            print(error)


def progress(every):
    from orce.runtime.process import Progress

    shown = Progress("sample arithmetic/[small]", 40, every=float(every))
    for done in range(8, 41, 8):
        shown.update(done, f"loss {1 / done:.4f}")
        time.sleep(0.15)


globals()[sys.argv[1]](*sys.argv[2:])
