"""Property files: YAML in, `Problem` out; `load` reads the file, `bind` validates it together with a model."""

from quantify.properties.bind import bind
from quantify.properties.files import data_files
from quantify.properties.source import PropertySource, load

__all__ = ["PropertySource", "bind", "data_files", "load"]
