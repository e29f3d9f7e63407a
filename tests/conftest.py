import jax

jax.config.update("jax_num_cpu_devices", 2)  # takes effect only before the first array is made
jax.config.update("jax_numpy_dtype_promotion", "standard")
