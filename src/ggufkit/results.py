"""The classes of what functions return, for annotations: `ggufkit.results.Estimate`."""

from ggufkit.edits.changes import Change
from ggufkit.edits.in_place import Edited
from ggufkit.evaluation.evaluate import Evaluation, Quality
from ggufkit.evaluation.statistics import Comparison, Distribution, Divergence, Measurement
from ggufkit.format.file_name import FileName
from ggufkit.format.values import Arrays, Strings
from ggufkit.frameworks.chat_template import ChatTemplate
from ggufkit.frameworks.tokenize import TokenizedText
from ggufkit.inspection.diff import Deviation, Difference, KeyChange, TensorChange
from ggufkit.inspection.digest import Digests
from ggufkit.inspection.estimate import Estimate
from ggufkit.inspection.histogram import Histogram
from ggufkit.inspection.tensor_block import TensorBlock
from ggufkit.inspection.tensor_statistics import TensorStatistics
from ggufkit.models.hub.repository import CachedModel
from ggufkit.models.model import ModelFile, Tensors
from ggufkit.output.layout import Layout
from ggufkit.quantization.losses.sensitivities import Sensitivity
from ggufkit.quantization.plan import Plan
from ggufkit.quantization.plan_memory import PlannedMemory
from ggufkit.quantization.provenance import Provenance
from ggufkit.quantization.repair import Repaired, Trial
from ggufkit.quantization.reproduce import Reproduction
from ggufkit.rules.findings import Finding

__all__ = [
    "Arrays",
    "CachedModel",
    "Change",
    "ChatTemplate",
    "Comparison",
    "Deviation",
    "Difference",
    "Digests",
    "Distribution",
    "Divergence",
    "Edited",
    "Estimate",
    "Evaluation",
    "FileName",
    "Finding",
    "Histogram",
    "KeyChange",
    "Layout",
    "Measurement",
    "ModelFile",
    "Plan",
    "PlannedMemory",
    "Provenance",
    "Quality",
    "Repaired",
    "Reproduction",
    "Sensitivity",
    "Strings",
    "TensorBlock",
    "TensorChange",
    "TensorStatistics",
    "Tensors",
    "TokenizedText",
    "Trial",
]
