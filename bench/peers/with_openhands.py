"""OpenHands' LLMSummarizingCondenser, used as its agent uses it in each step: on a view that grows with the events."""

import os
import uuid
from importlib.metadata import version

# Prevents downloads: prices and tokenizers are part of the package.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from openhands.sdk.agent.utils import prepare_llm_messages
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, MessageEvent, ObservationEvent
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool.schema import Observation

VERSION = version("openhands-sdk")

# More than the length of any history, so that only the token threshold counts, as for the other peers.
EVENTS = 1_000_000
WINDOW = 1_000_000_000


class ToolOutput(Observation):
    """The result of a tool."""


class Peer:
    def __init__(self, trigger, keep, summary):
        del keep  # This condenser has no such setting; it leaves half of the tokens.
        reply = Message(role="assistant", content=[TextContent(text=summary)])
        writer = TestLLM.from_messages([reply] * 1_000)
        self.llm = TestLLM.from_messages([], model="gpt-4o", max_input_tokens=WINDOW)
        self.condenser = LLMSummarizingCondenser(llm=writer, max_size=EVENTS, max_tokens=trigger)
        self.view = View()
        self.condensed = 0
        self.called = None

    def add(self, message, _tokens):
        self.view.append_event(self.event(message))

    def event(self, message):
        match message:
            case {"tool_calls": [{"id": call, "function": {"name": name, "arguments": arguments}}]}:
                tool_call = MessageToolCall(id=call, name=name, arguments=arguments, origin="completion")
                self.called = ActionEvent(
                    thought=[], tool_name=name, tool_call_id=call, tool_call=tool_call, llm_response_id=str(uuid.uuid4())
                )
                return self.called
            case {"role": "tool", "tool_call_id": call, "content": text}:
                return ObservationEvent(
                    observation=ToolOutput.from_text(text),
                    action_id=self.called.id,
                    tool_name=self.called.tool_name,
                    tool_call_id=call,
                )
            case {"role": role, "content": text}:
                source = "user" if role == "user" else "agent"
                return MessageEvent(source=source, llm_message=Message(role=role, content=[TextContent(text=text)]))

    def before_call(self):
        while True:
            ready = prepare_llm_messages(self.view, condenser=self.condenser, llm=self.llm)
            if not isinstance(ready, Condensation):
                return ready
            # The agent records the condensation and repeats its step.
            self.view.append_event(ready)
            self.condensed += 1

    def after_turn(self):
        pass

    def wire(self, sent):
        return self.llm.format_messages_for_llm(sent)
