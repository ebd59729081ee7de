"""``openinfer studio``: view, edit, step through, time and compile a graph in the browser.

The page is in ``studio/`` of the repository and bundled into ``assets``; this package answers its calls.
"""
