"""Jobs, the epoch loop that runs them on Spark, and the command line.

Promise: whatever is wrong with a job or a call is said in one sentence, by name, before
anything is changed; an epoch is checked to be whole before it is committed.

    job, functions, events         what a user writes and is given
    describing, topology           a job, checked as a whole
    run, loop, planning, checking  the driver: begin with loop
    description, compatibility     what a root remembers of a job, and whether it still fits
    reading, packing, wire         rows on their way to their partition
    inbox, grouping, calling, emitting, processing   one partition's work
    session, frames, tasks, sending                  all that knows Spark
    cli, cli_*, view               the command line

May import every room but `penstock.chaos`.
"""

__all__: list[str] = []
