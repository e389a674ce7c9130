"""A StepTable as PredictResponses at DETAIL_STEP, one a candidate shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewise.hwdb.gpu import Gpu
from tilewise.server.architecture import Architecture, ParameterCount
from tilewise.server.messages.enums import TRUSTS
from tilewise.server.messages.gpu import gpu_message, peak_message
from tilewise.server.messages.question import workload_message
from tilewise.server.messages.report import walls
from tilewise.server.report import StepTable
from tilewise.server.workload import Workload
from tilewise.v1.advisor_service_pb2 import PredictResponse
from tilewise.v1.model_pb2 import ModelSummary
from tilewise.v1.prediction_pb2 import Prediction
from tilewise.v1.report_pb2 import Memory, Step
