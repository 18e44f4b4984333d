-- Returns the delay until the next score, 0 where it has passed, -1 where there is none.
return head_delay()
