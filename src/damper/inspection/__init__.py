"""Inspection of recorded logs: is it the policy, the delay or the gains?"""

from damper.inspection.log import Log, read_log
from damper.inspection.measures import ActionReport, Inspection, inspect_log

__all__ = ["ActionReport", "Inspection", "Log", "inspect_log", "read_log"]
