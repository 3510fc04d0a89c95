//! The Python face: the class `Engine` as pgshoal's contract describes it.

mod engine;
mod events;
mod records;
mod text;

use pyo3::prelude::*;

/// The compiled module.
#[pymodule]
fn pgshoal_engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<records::Context>()
}
