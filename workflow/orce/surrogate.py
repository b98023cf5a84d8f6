"""Public name of orce.answers.surrogate: the correctness likelihood kappa."""

from orce.answers.surrogate import kappa, read_surrogate, realised_answer, write_surrogate

__all__ = ["kappa", "read_surrogate", "realised_answer", "write_surrogate"]
