"""The only room that knows Spark, and the command line.

Promise: whatever is wrong with a job or a call is said in one sentence, by name, before
anything is changed.

May import every room but `penstock.chaos`.
"""

__all__: list[str] = []
