"""One self-contained HTML page about rollouts: tables, diagrams, and the rollouts themselves to read.

Reading rollouts is how people find the bugs of their rewards, so the page holds them: filtered, sorted, with the parsed spans
marked and every component of the reward beside them. A rollout is untrusted text: it reaches the page as data, is only
ever shown as text, and the page may load nothing and run no script but its own.
"""

from rewardkit.report.build import Report, build_report
from rewardkit.report.follow import follow

__all__ = ["Report", "build_report", "follow"]
