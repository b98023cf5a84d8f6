# What the library imports from transformers, for `make types` alone: transformers' own __init__.py names every model it
# has, and to read all of them takes a third of the check. The types are those of the modules named here.
from transformers.cache_utils import DynamicCache as DynamicCache
from transformers.configuration_utils import PreTrainedConfig as PreTrainedConfig
from transformers.generation.configuration_utils import GenerationConfig as GenerationConfig
from transformers.masking_utils import AttentionMaskInterface as AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface as AttentionInterface
from transformers.modeling_utils import PreTrainedModel as PreTrainedModel
from transformers.models.auto.configuration_auto import AutoConfig as AutoConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM as AutoModelForCausalLM
from transformers.models.auto.tokenization_auto import AutoTokenizer as AutoTokenizer
from transformers.models.llama.configuration_llama import LlamaConfig as LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM as LlamaForCausalLM
from transformers.tokenization_utils_base import PreTrainedTokenizerBase as PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast as PreTrainedTokenizerFast
from transformers.trainer import Trainer as Trainer
from transformers.trainer_callback import PrinterCallback as PrinterCallback
from transformers.trainer_callback import TrainerCallback as TrainerCallback
from transformers.trainer_utils import set_seed as set_seed
from transformers.training_args import TrainingArguments as TrainingArguments
