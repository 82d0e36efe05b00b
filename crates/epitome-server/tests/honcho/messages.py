"""Messages: in order, as sent, by page, and by filter."""

from datetime import datetime, timedelta, timezone

from honcho import MessageCreateParams, NotFoundError

from both import UTC, all_of, contents, ids, line, messages, moment, raw, refused, run, same, talk, tell, told


def said(content, peer="ann", **more):
    return MessageCreateParams(peer_id=peer, content=content, **more)


async def a_hundred_at_once_come_back_in_order(do, honcho):
    session = await do(honcho).session("s")
    sent = talk(1, 100)
    back = await do(session).add_messages(sent)
    same([(one.content, one.peer_id) for one in back], [(one.content, one.peer_id) for one in sent])
    same(len(set(ids(back))), 100)
    assert all(len(one.id) == 21 and one.token_count > 10 and one.metadata == {} for one in back)
    same({(one.session_id, one.workspace_id) for one in back}, {("s", honcho.workspace_id)})
    listed = await messages(do, session)
    same([vars(one) for one in listed], [vars(one) for one in back])


async def pages_are_walked_to_their_end(do, honcho):
    session = await told(do, honcho, "s", 130)
    wanted = contents(talk(1, 130))
    first = await do(session).messages()
    same((first.total, first.page, first.size, first.pages, len(first)), (130, 1, 50, 3, 50))
    same(contents(await all_of(first)), wanted)
    same(contents(await all_of(await do(session).messages(size=30))), wanted)
    same(contents(await all_of(await do(session).messages(size=30, reverse=True))), wanted[::-1])
    last = await do(session).messages(size=50, page=3)
    same((last.page, contents(last.items), last.has_next_page()), (3, wanted[100:], False))
    back = await do(session).messages(size=1, reverse=True)
    same((contents(back.items), back.pages), (wanted[-1:], 130))
    same(len(await do(session).messages(size=50, page=4)), 0)


async def a_list_walked_while_others_write_gives_nothing_twice(do, honcho):
    session = await told(do, honcho, "s", 60)
    first = await do(session).messages(size=50)
    await tell(do, session, 61, 120)
    same(contents(await all_of(first))[:60], contents(talk(1, 60)))


async def moments_are_kept_to_the_microsecond(do, honcho):
    session = await do(honcho).session("s")
    moments = [
        datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
        datetime(2024, 1, 1, 12, 0, 0, 123457, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2024, 2, 29, 0, 0, 0, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(2030, 6, 1, tzinfo=timezone(timedelta(hours=-8))),
        datetime(1969, 7, 20, 20, 17, 40, 500001, tzinfo=UTC),
    ]
    back = await do(session).add_messages([said(f"At {at}.", created_at=at) for at in moments])
    same([one.created_at for one in back], moments)
    same([one.created_at for one in await messages(do, session)], moments)
    same([one.created_at for one in (await do(session).context()).messages], moments)
    # A time without a zone is in UTC. The default is the current time.
    (naive, now) = await do(session).add_messages([said("x", created_at=datetime(2024, 5, 6, 7, 8, 9, 10)), said("y")])
    same(naive.created_at, datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC))
    assert abs((datetime.now(UTC) - now.created_at).total_seconds()) < 3600


async def moments_are_written_in_utc(do, honcho):
    path = f"/{honcho.workspace_id}/sessions/s/messages"
    for slash, sent, wanted in (
        ("", "2024-01-01T12:00:00+02:00", datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("/", "2024-01-01T12:00:00.1234567Z", datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)),
    ):
        body = {"messages": [{"peer_id": "ann", "content": "x", "created_at": sent}]}
        answer = raw("POST", path + slash, json=body)
        same(answer.status_code, 201)
        same(moment(answer.json()[0]["created_at"]), wanted)


async def one_message_is_found_and_its_metadata_replaced(do, honcho):
    session = await do(honcho).session("s")
    first, second = await do(session).add_messages([line(1, metadata={"a": [1, {"b": None}]}), line(2)])
    same(vars(await do(session).get_message(first.id)), vars(first))
    same(first.metadata, {"a": [1, {"b": None}]})
    changed = await do(session).update_message(first, {"c": "d"})
    same((changed.id, changed.content, changed.metadata), (first.id, first.content, {"c": "d"}))
    await do(session).update_message(second.id, {"e": 1})
    same([one.metadata for one in await messages(do, session)], [{"c": "d"}, {"e": 1}])
    same((await do(session).get_message(first.id)).created_at, first.created_at)
    same((await do(session).context()).messages[0].metadata, {"c": "d"})
    await do(session).update_message(first, {})
    same((await do(session).get_message(first.id)).metadata, {})
    same(contents(await messages(do, session)), [first.content, second.content])


async def a_message_is_not_found_where_it_is_not(do, honcho):
    session, other = await told(do, honcho, "s", 2), await told(do, honcho, "t", 2)
    (first, _) = await messages(do, session)
    for asked in ("zzz", "x" * 21, first.id[:-1], first.id[::-1]):
        await refused(NotFoundError, do(session).get_message(asked), f"Message with ID {asked} not found")
        await refused(NotFoundError, do(session).update_message(asked, {"a": 1}), "not found")
    await refused(NotFoundError, do(other).get_message(first.id), "not found")


async def messages_are_found_by_what_they_are(do, honcho):
    session = await do(honcho).session("s")
    start = datetime(2024, 1, 1, tzinfo=UTC)
    peers = ["ann", "bob", "cat"]
    await do(session).add_messages(
        [
            said(
                f"Parcel {at} for Oslo" if at % 2 else f"parcel {at} for Bergen",
                peers[at % 3],
                metadata={"at": at, "deep": {"even": at % 2 == 0, "tags": ["x", f"t{at}"]}, "half": at / 2},
                created_at=start + timedelta(days=at),
            )
            for at in range(12)
        ]
    )

    async def those(filters):
        page = await do(session).messages(filters=filters, size=5)
        found = await all_of(page)
        same(page.total, len(found))
        return [one.metadata["at"] for one in found]

    everything = list(range(12))
    day = "2024-01-{:02}T00:00:00Z".format
    for filters, wanted in (
        ({"peer_id": "ann"}, [0, 3, 6, 9]),
        ({"peer_id": {"in": ["ann", "bob"]}}, [0, 1, 3, 4, 6, 7, 9, 10]),
        ({"peer_id": {"ne": "ann"}}, [1, 2, 4, 5, 7, 8, 10, 11]),
        ({"peer_id": "*"}, everything),
        ({"peer_id": "nobody"}, []),
        ({"peer_id": "ann", "metadata": {"at": 3}}, [3]),
        ({"created_at": {"gt": day(11)}}, [11]),
        ({"created_at": {"gte": day(11)}}, [10, 11]),
        ({"created_at": {"lt": day(2)}}, [0]),
        ({"created_at": {"gte": day(3), "lte": day(5)}}, [2, 3, 4]),
        ({"created_at": {"gte": "2024-01-12T01:00:00+02:00"}}, [11]),
        ({"content": {"contains": "Oslo"}}, [1, 3, 5, 7, 9, 11]),
        ({"content": {"contains": "Parcel"}}, [1, 3, 5, 7, 9, 11]),
        ({"content": {"icontains": "PARCEL 1"}}, [1, 10, 11]),
        ({"metadata": {"at": 5}}, [5]),
        ({"metadata": {"at": {"gt": 9}}}, [10, 11]),
        ({"metadata": {"half": {"lte": 0.5}}}, [0, 1]),
        ({"metadata": {"at": {"in": [1, 4, 99]}}}, [1, 4]),
        ({"metadata": {"deep": {"even": True}}}, [0, 2, 4, 6, 8, 10]),
        ({"metadata": {"deep": {"tags": ["t7"]}}}, [7]),
        ({"metadata": {"nothing": 1}}, []),
        ({"AND": [{"peer_id": "ann"}, {"metadata": {"at": {"gte": 6}}}]}, [6, 9]),
        ({"OR": [{"metadata": {"at": 1}}, {"metadata": {"at": 11}}]}, [1, 11]),
        ({"NOT": [{"peer_id": "ann"}, {"peer_id": "bob"}]}, [2, 5, 8, 11]),
        ({"peer_id": "ann", "NOT": [{"metadata": {"at": {"lt": 9}}}]}, [9]),
        (
            {"AND": [{"OR": [{"peer_id": "ann"}, {"peer_id": "cat"}]}, {"NOT": [{"content": {"contains": "Oslo"}}]}]},
            [0, 2, 6, 8],
        ),
        ({"token_count": {"gt": 0}}, everything),
        ({"session_id": "s"}, everything),
        ({"session_id": "t"}, []),
        ({}, everything),
    ):
        try:
            same(await those(filters), wanted)
        except Exception as error:
            raise AssertionError(f"{filters}: {error}") from error
    back = await all_of(await do(session).messages(filters={"peer_id": "bob"}, size=3, reverse=True))
    same([one.metadata["at"] for one in back], [10, 7, 4, 1])


async def what_was_just_written_is_read(do, honcho):
    session = await do(honcho).session("s")
    for at in range(1, 46):
        (new,) = await do(session).add_messages(line(at))
        newest = await do(session).messages(size=1, reverse=True)
        same((newest.total, ids(newest.items)), (at, [new.id]))
        same((await do(session).context(summary=False)).messages[-1].id, new.id)
        await do(session).set_metadata({"at": at})
        same((await do(honcho).session("s")).metadata, {"at": at})


run(
    a_hundred_at_once_come_back_in_order,
    pages_are_walked_to_their_end,
    a_list_walked_while_others_write_gives_nothing_twice,
    moments_are_kept_to_the_microsecond,
    moments_are_written_in_utc,
    one_message_is_found_and_its_metadata_replaced,
    a_message_is_not_found_where_it_is_not,
    messages_are_found_by_what_they_are,
    what_was_just_written_is_read,
)
