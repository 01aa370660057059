"""The images that the project makes itself: the base that tasks start from, and the toolbox."""

from harness.images.base.ensure import BaseImage, Way, ensure_base
from harness.images.base.recipe import BASE, RECIPES, TOOLBOX, Recipe

__all__ = ["BASE", "RECIPES", "TOOLBOX", "BaseImage", "Recipe", "Way", "ensure_base"]
