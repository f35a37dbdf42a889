"""``python -m rewardkit``: the same as the ``rewardkit`` command."""

from rewardkit.cli import main

if __name__ == "__main__":
    main()
