"""Log lines of a reservation pod."""

import io
import json

from vramline.reserve.lines import speaker


def test_a_line_has_its_message_in_quotes_and_its_keys_behind_it() -> None:
    written = io.StringIO()

    speaker(as_json=False, stream=written)("Found GPU device", deviceId="GPU-1")

    at, _, rest = written.getvalue().partition(" ")
    assert at.endswith("Z")
    assert rest == '"Found GPU device" deviceId="GPU-1"\n'


def test_a_value_cannot_break_the_line() -> None:
    written = io.StringIO()

    speaker(as_json=False, stream=written)("Found GPU device", deviceId='a"\nb')

    assert written.getvalue().count("\n") == 1
    assert r'deviceId="a\"\nb"' in written.getvalue()


def test_every_line_is_an_object_where_that_is_wanted() -> None:
    written = io.StringIO()

    speaker(as_json=True, stream=written)("Found GPU device", deviceId="GPU-1")

    line = json.loads(written.getvalue())
    assert (line["event"], line["deviceId"], line["level"]) == ("Found GPU device", "GPU-1", "info")
