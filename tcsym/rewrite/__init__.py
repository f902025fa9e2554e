"""Program -> program: sums, products and chains in the form that schedules well."""
