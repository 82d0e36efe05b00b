"""An agent on OpenAI's chat completions: a plain loop of calls and tools. With `--stream` it reads streamed replies.

The client reads its address and key from OPENAI_BASE_URL and OPENAI_API_KEY.
"""
import json
import sys

from openai import OpenAI

import workshop

client = OpenAI(max_retries=0)
stream = "--stream" in sys.argv
tools = [
    {"type": "function", "function": {"name": name, "description": what, "parameters": workshop.SCHEMA}}
    for name, what in workshop.TOOLS
]
messages = [{"role": "system", "content": workshop.SYSTEM}]
calls = 0


def call():
    if not stream:
        reply = client.chat.completions.create(model="stand-in", messages=messages, tools=tools)
        return reply.choices[0].message.model_dump(exclude_none=True)
    words, asked, usage = "", {}, None
    chunks = client.chat.completions.create(
        model="stand-in", messages=messages, tools=tools, stream=True, stream_options={"include_usage": True}
    )
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            words += choice.delta.content or ""
            for piece in choice.delta.tool_calls or []:
                one = asked.setdefault(piece.index, {"id": piece.id, "name": piece.function.name, "arguments": ""})
                one["arguments"] += piece.function.arguments or ""
    assert usage.prompt_tokens > 0
    message = {"role": "assistant", "content": words or None}
    if asked:
        message["tool_calls"] = [
            {"id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": one["arguments"]}}
            for one in asked.values()
        ]
    return message


answer = None
for text in workshop.user_messages(lambda: workshop.size_of(messages)):
    messages.append({"role": "user", "content": text})
    while True:
        message = call()
        message.pop("annotations", None)
        calls += 1
        messages.append(message)
        answer = message.get("content")
        if not message.get("tool_calls"):
            break
        for one in message["tool_calls"]:
            output = workshop.run(one["function"]["name"], json.loads(one["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": output})
workshop.tell(calls, messages, answer)
