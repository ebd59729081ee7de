"""A server of compiled graphs: the Open Inference Protocol over HTTP and gRPC, sessions, and text of language models.

Protocols decode requests and encode answers; the code that runs models knows no protocol. Nothing in a request becomes
a path or code.
"""

from openinfer.serve.models import ModelFiles, Served, Serving
from openinfer.serve.options import ServeOptions
from openinfer.serve.repository import Repository
from openinfer.serve.service import Inference

__all__ = ["Inference", "ModelFiles", "Repository", "ServeOptions", "Served", "Serving"]
