"""tRPC-Agent's session summarizer, as its runner calls it after each turn."""

import asyncio
import json
from importlib.metadata import version

from google.genai.types import GenerateContentResponseUsageMetadata
from trpc_agent_sdk.events import Event
from trpc_agent_sdk.models import LLMModel, LlmResponse
from trpc_agent_sdk.sessions import (
    InMemorySessionService,
    SessionSummarizer,
    SummarizerSessionManager,
    set_summarizer_token_threshold,
)
from trpc_agent_sdk.types import Content, FunctionCall, FunctionResponse, Part

VERSION = version("trpc-agent-py")


class StandIn(LLMModel):
    """A model that returns the summary immediately."""

    def __init__(self, summary):
        super().__init__("stand-in")
        self.summary = summary

    @classmethod
    def supported_models(cls):
        return ["stand-in"]

    async def _generate_async_impl(self, request, stream=False, ctx=None):
        yield LlmResponse(content=Content(role="model", parts=[Part.from_text(text=self.summary)]))

    def validate_request(self, request):
        pass


class Peer:
    def __init__(self, trigger, keep, summary):
        model = StandIn(summary)
        # The summarizer counts no tokens itself. It adds up what the provider reported with each event.
        due = [set_summarizer_token_threshold(trigger)]
        summarizer = SessionSummarizer(model, check_summarizer_functions=due, keep_recent_count=keep)
        manager = SummarizerSessionManager(model, summarizer)
        self.loop = asyncio.new_event_loop()
        self.service = self.wait(self.started(manager))
        self.session = self.wait(self.service.create_session(app_name="bench", user_id="bench"))
        self.names = {}
        self.summary = None
        self.condensed = 0

    async def started(self, manager):
        # The service requires a running event loop.
        return InMemorySessionService(summarizer_manager=manager)

    def wait(self, work):
        return self.loop.run_until_complete(work)

    def add(self, message, tokens):
        if self.summary is not self.first():
            # The runner does the same in each turn, because the service stores the summarized session.
            self.session = self.wait(self.service.get_session(app_name="bench", user_id="bench", session_id=self.session.id))
            self.summary = self.first()
            self.condensed += 1
        usage = GenerateContentResponseUsageMetadata(total_token_count=tokens)
        author = "user" if message["role"] == "user" else "agent"
        event = Event(invocation_id="turn", author=author, content=self.content(message), usage_metadata=usage)
        self.wait(self.service.append_event(self.session, event))

    def content(self, message):
        match message:
            case {"tool_calls": [{"id": call, "function": {"name": name, "arguments": arguments}}]}:
                self.names[call] = name
                part = Part(function_call=FunctionCall(id=call, name=name, args=json.loads(arguments)))
                return Content(role="model", parts=[part])
            case {"role": "tool", "tool_call_id": call, "content": text}:
                response = FunctionResponse(id=call, name=self.names[call], response={"result": text})
                return Content(role="user", parts=[Part(function_response=response)])
            case {"role": role, "content": text}:
                return Content(role="user" if role == "user" else "model", parts=[Part.from_text(text=text)])

    def before_call(self):
        return self.session.events

    def after_turn(self):
        self.wait(self.service.create_session_summary(self.session))

    def first(self):
        """Returns the summary event, if there is one. It is the first event."""
        events = self.session.events
        return events[0] if events and events[0].is_summary_event() else None

    def wire(self, sent):
        return [message for event in sent for part in event.content.parts for message in self.encoded(event, part)]

    def encoded(self, event, part):
        if part.function_call:
            function = {"name": part.function_call.name, "arguments": json.dumps(part.function_call.args)}
            call = {"id": part.function_call.id, "type": "function", "function": function}
            yield {"role": "assistant", "content": None, "tool_calls": [call]}
        elif part.function_response:
            text = part.function_response.response["result"]
            yield {"role": "tool", "tool_call_id": part.function_response.id, "content": text}
        else:
            yield {"role": "user" if event.content.role == "user" else "assistant", "content": part.text}
