//! A client in Rust with reqwest. Tests run it (`clients_of_others.py`).
//!
//! ```text
//! rust-client upload URL BYTES TIMES    uploads, one after the other; a line for each answer
//! rust-client infer URL                 asks the model add_sub with binary tensors
//! ```
#![forbid(unsafe_code)]

use std::error::Error;

use reqwest::blocking::Client;
use reqwest::header::CONTENT_TYPE;

type Outcome<T> = Result<T, Box<dyn Error>>;

const HEAD_LENGTH: &str = "Inference-Header-Content-Length";

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["upload", url, bytes, times] => upload(url, bytes.parse()?, times.parse()?),
        ["infer", url] => infer(url),
        _ => Err("upload URL BYTES TIMES, or infer URL".into()),
    }
}

fn upload(url: &str, bytes: usize, times: usize) -> Outcome<()> {
    let client = Client::new();
    for _ in 0..times {
        match send(&client, url, vec![0; bytes]) {
            Ok((status, text)) => println!("{status} {text}"),
            Err(error) => println!("lost {error:?}"),
        }
    }
    Ok(())
}

fn send(client: &Client, url: &str, body: Vec<u8>) -> reqwest::Result<(u16, String)> {
    let answer = client.post(url).body(body).send()?;
    Ok((answer.status().as_u16(), answer.text()?))
}

fn infer(url: &str) -> Outcome<()> {
    let tensor = |name: &str| {
        format!(
            r#"{{"name":"{name}","datatype":"INT32","shape":[1,16],"parameters":{{"binary_data_size":64}}}}"#
        )
    };
    let head = format!(
        r#"{{"inputs":[{},{}],"outputs":[{{"name":"OUTPUT0","parameters":{{"binary_data":true}}}}]}}"#,
        tensor("INPUT0"),
        tensor("INPUT1")
    );
    let head_length = head.len().to_string();
    let mut body = head.into_bytes();
    body.extend((0..16_i32).flat_map(i32::to_le_bytes));
    body.extend([1000_i32; 16].into_iter().flat_map(i32::to_le_bytes));
    let request = Client::new()
        .post(format!("{url}/v2/models/add_sub/infer"))
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(HEAD_LENGTH, head_length);
    let answer = request.body(body).send()?.error_for_status()?;
    let head_length: usize = answer.headers().get(HEAD_LENGTH).ok_or("no length")?.to_str()?.parse()?;
    let bytes = answer.bytes()?;
    let (elements, []) = bytes.get(head_length..).ok_or("too short")?.as_chunks() else {
        return Err("the tensor has no whole elements".into());
    };
    let elements: Vec<_> = elements.iter().map(|&element| i32::from_le_bytes(element).to_string()).collect();
    println!("{}", elements.join(","));
    Ok(())
}
