"""KoBEST: five tasks that need knowledge of Korean, written by people (Kim et al. 2022).

The settings of a model are chosen on `dev` (`kobest-copa-dev` and so on), and scores are reported on `test`. The
repository names no licence; the paper publishes the data under CC BY-SA 4.0.
"""
