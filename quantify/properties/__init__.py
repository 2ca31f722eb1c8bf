"""Property files: YAML in, `Problem` out; `load` reads the file, `bind` validates it together with a model."""

from quantify.properties.bind import bind
from quantify.properties.files import data_files
from quantify.properties.plan import Plan, Row, load_plan
from quantify.properties.source import PropertySource, load, with_epsilon

__all__ = ["Plan", "PropertySource", "Row", "bind", "data_files", "load", "load_plan", "with_epsilon"]
