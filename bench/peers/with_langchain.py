"""LangChain's SummarizationMiddleware, as `create_agent` calls it before each call of the model."""

from importlib.metadata import version

from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langgraph.graph.message import add_messages

VERSION = version("langchain")


class Peer:
    def __init__(self, trigger, keep, summary):
        model = FakeListChatModel(responses=[summary])
        self.middleware = SummarizationMiddleware(model, trigger=("tokens", trigger), keep=("messages", keep))
        self.messages = []
        self.condensed = 0

    def add(self, message, _tokens):
        self.messages.extend(convert_to_messages([message]))

    def before_call(self):
        update = self.middleware.before_model({"messages": self.messages}, None)
        if update is not None:
            self.messages = add_messages(self.messages, update["messages"])
            self.condensed += 1
        return self.messages

    def after_turn(self):
        pass

    def wire(self, sent):
        return convert_to_openai_messages(sent)
