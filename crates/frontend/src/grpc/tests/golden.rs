use super::*;
use testing::golden::{self, Exchange, Message as Written};
use testing::{schema, compare};

#[tokio::test]
async fn scratch() {
    let (_server, connection) = connected().await;
    for record in golden::records() {
        let (path, written, meta, code, details, answer) = match record.exchange {
            Exchange::Unary { path, message, metadata, code, details, answer } => (path, message, metadata, code, details, answer),
            Exchange::Stream { requests, metadata, responses, code } => {
                let mut call = connection.call(STREAM, &metadata).await.unwrap();
                for r in &requests {
                    if r.get("sleep").is_some() { tokio::time::sleep(Duration::from_millis(300)).await; continue; }
                    call.send(framed(&schema::encode("inference.ModelInferRequest", r).unwrap()));
                }
                call.finish();
                let (messages, status) = timeout(PATIENCE, call.rest()).await.unwrap().unwrap();
                let ours: Vec<_> = messages.iter().map(|m| schema::decode("inference.ModelStreamInferResponse", m).unwrap()).collect();
                let d = if format!("{ours:?}") == format!("{responses:?}") { None } else { Some(format!("ours {ours:?}\n theirs {responses:?}")) };
                println!("{} {} {} {}", record.name, if d.is_none() && status.name() == code {"ok"} else {"DIFF"}, status.name(), d.unwrap_or_default());
                continue;
            }
            _ => continue,
        };
        let types = schema::method(&path);
        let bytes = match (&written, &types) {
            (Written::Json(json), Some((input, _))) => schema::encode(input, json).unwrap(),
            (Written::Bytes(b), _) => b.clone(),
            (Written::Json(_), None) => vec![],
        };
        let (messages, status) = timeout(PATIENCE, connection.unary(&path, &meta, framed(&bytes))).await.unwrap().unwrap();
        let same_code = status.name() == code && status.message == details;
        let ours = messages.first().and_then(|m| types.as_ref().map(|(_, o)| schema::decode(o, m).unwrap()));
        let diff = match (&ours, &answer) {
            (Some(o), Some(Written::Json(j))) => compare::difference(&j.to_string(), &o.to_string()),
            _ => None,
        };
        if same_code && diff.is_none() { println!("{} ok", record.name); } else {
            println!("{} DIFF {} {} / {} {} {:?}", record.name, status.name(), status.message, code, details, diff);
        }
    }
}
