"""The screening of rules for the default: candidates side by side, judged by a rule set in advance.

The rule of decision, written before any number of this screening was seen. One candidate, with one
setting for all tasks, backbones and PPO, becomes the default if

1. none of its agents holds one constant action, in any population, at any reward scale; then
2. its return is not below plain's over the tasks: with the seeds' returns scaled per task by
   plain's mean and the best mean of any variant (0: the worst mean of any variant), the interval
   of the difference of interquartile means, candidate minus plain, over all populations,
   bootstrapped by seeds within tasks, reaches 0 or above; and
3. among those that pass, it reduces mean |Δa| most: the mean over populations of
   log(mean |Δa| of the candidate / mean |Δa| of plain), with at least the reduction of η = 0 over
   the populations where η = 0 keeps plain's return (point 2, for that population), and at least
   half that of η = 1 where η = 1 is healthy (no constant agent), both on the same scale.

Ties (less than 0.05 on that scale) go to the candidate that does not depend on the reward's scale,
then to the one with fewer settings. If none passes, the default becomes the setting of the paper's
rule with which nothing in the records collapses. Screening seeds (0, 1, 2, …) are used for nothing
else.
"""
