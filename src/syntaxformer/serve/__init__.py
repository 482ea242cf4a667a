"""Trained models behind HTTP: translation and classification, requests batched together as they come."""

from syntaxformer.serve.app import create_app
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.engines import Engine, load_engine
from syntaxformer.serve.server import PAGES, name_models, run

__all__ = ["PAGES", "Engine", "ServiceConfig", "create_app", "load_engine", "name_models", "run"]
