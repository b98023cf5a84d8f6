"""SFT-long: the warm start's training, on its own pairs, for as many epochs as `methods.sft_long.epochs` says.

The control of the alignment's steps. SFT and DPO together take (SFT's epochs x its questions + DPO's epochs x its
questions) / batch_size steps; divide that by SFT's questions / batch_size.
"""

from orce.methods.sft_all import train

LABEL, KIND = "SFT-long", "stated"
TRAINED_ON = ("sft",)
__all__ = ["train"]
