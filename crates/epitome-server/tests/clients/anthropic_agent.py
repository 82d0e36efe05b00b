"""An agent on Anthropic's messages, with `cache_control` marks as in Anthropic's own examples.

With `--stream` it reads streamed replies. The client reads its address and key from
ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY.
"""
import sys

from anthropic import Anthropic

import workshop

client = Anthropic(max_retries=0)
stream = "--stream" in sys.argv
tools = [
    {"name": name, "description": what, "input_schema": workshop.SCHEMA} for name, what in workshop.TOOLS
]
system = [{"type": "text", "text": workshop.SYSTEM, "cache_control": {"type": "ephemeral"}}]
messages = []
calls = 0


def marked():
    """Returns the history with a cache mark on the newest block of the user's last message."""
    *before, last = messages
    *blocks, newest = last["content"]
    return [*before, {**last, "content": [*blocks, {**newest, "cache_control": {"type": "ephemeral"}}]}]


def call():
    request = dict(model="stand-in", max_tokens=1024, system=system, messages=marked(), tools=tools)
    if not stream:
        return client.messages.create(**request)
    with client.messages.stream(**request) as events:
        for _ in events.text_stream:
            pass
        return events.get_final_message()


answer = None
for text in workshop.user_messages(lambda: workshop.size_of(messages)):
    messages.append({"role": "user", "content": [{"type": "text", "text": text}]})
    while True:
        reply = call()
        calls += 1
        answer = "".join(block.text for block in reply.content if block.type == "text")
        messages.append({
            "role": "assistant",
            "content": [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in reply.content],
        })
        asked = [block for block in reply.content if block.type == "tool_use"]
        if not asked:
            break
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": workshop.run(block.name, block.input)}
            for block in asked
        ]
        messages.append({"role": "user", "content": results})
workshop.tell(calls, messages, answer)
