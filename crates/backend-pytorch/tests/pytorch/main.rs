//! The backend with stand-ins for PyTorch's library and for compiled code, which the C compiler makes.
mod refusals;
mod requests;
mod support;
