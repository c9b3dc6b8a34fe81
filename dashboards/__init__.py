"""Dashboards as code, one module each; `tools/dashboards` prints them for role `dashboards`.

Every question is about the one-minute tier, whose names carry the interval and the statistic
(`node_load1:1m_max`): both what tenants may ask and what lasts a year are there. PromQL alone, since the
gateway answers nothing else.
"""

from __future__ import annotations
