"""`fracdnn play`: the playground in the browser."""

import webbrowser
from threading import Thread

import typer

from fracdnn.cli.messages import say
from fracdnn.kernels.interrupts import interrupt_afterwards
from fracdnn.playground import Server


def serve_playground(table: str | None, *, port: int | None, browser: bool, encoding: str) -> None:
    """Until Ctrl-C."""
    document = None
    if table is not None:
        with interrupt_afterwards():  # which an import would lose
            from fracdnn.playground.table import table_document
        document = table_document(table, encoding)
        if document["left"]:
            say(f"{len(document['x']):,} of {document['left'] + len(document['x']):,} rows are shown")
    with Server(document, port) as server:
        typer.echo(f"The playground is at {server.address} until Ctrl-C.")
        if browser:
            # A browser in the terminal would not come back before it ends.
            Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("the playground is closed")
