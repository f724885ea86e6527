"""NGBoost: trees and linear learners that add up to the parameters of a distribution."""
