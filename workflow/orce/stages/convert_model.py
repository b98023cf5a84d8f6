"""Convert the GGUF weights in a Python package to the Hugging Face format (safetensors)."""

from orce.llm import gguf


def add_arguments(parser):
    parser.add_argument("--package", required=True, help="name of the installed package")
    parser.add_argument("--file", required=True, help="name of the GGUF file in it")
    parser.add_argument("--out", required=True, help="folder of the model")


def run(args):
    gguf.convert(args.package, args.file, args.out)
