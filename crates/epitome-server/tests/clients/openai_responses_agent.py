"""An agent on OpenAI's Responses that stores its own history: it returns the model's items unchanged.

With `--stream` it reads streamed replies. The client reads its address and key from the environment.
"""
import json
import sys

from openai import OpenAI

import workshop

client = OpenAI(max_retries=0)
stream = "--stream" in sys.argv
tools = [
    {"type": "function", "name": name, "description": what, "parameters": workshop.SCHEMA}
    for name, what in workshop.TOOLS
]
items = []
calls = 0


def call():
    request = dict(model="stand-in", instructions=workshop.SYSTEM, input=items, tools=tools, store=False)
    if not stream:
        return client.responses.create(**request, include=["reasoning.encrypted_content"])
    with client.responses.stream(**request) as events:
        words = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        reply = events.get_final_response()
    assert reply.output_text == words
    return reply


answer = None
for text in workshop.user_messages(lambda: workshop.size_of(items)):
    items.append({"role": "user", "content": text})
    while True:
        reply = call()
        calls += 1
        answer = reply.output_text
        asked = [item for item in reply.output if item.type == "function_call"]
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in reply.output]
        for item in items:
            for part in item.get("content") or []:
                if isinstance(part, dict):
                    part.pop("parsed", None)
        if not asked:
            break
        for item in asked:
            output = workshop.run(item.name, json.loads(item.arguments))
            items.append({"type": "function_call_output", "call_id": item.call_id, "output": output})
workshop.tell(calls, items, answer)
