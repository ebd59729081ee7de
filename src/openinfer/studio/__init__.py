"""``openinfer studio``: a graph in the browser, looked at, edited, stepped through, timed and compiled.

The page is in ``studio/`` of the repository and bundled into ``assets``; what stands here answers its questions.
"""
