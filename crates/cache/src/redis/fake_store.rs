//! A store in the test process that speaks enough of the protocol, and misbehaves as a test wants.
use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use inference::lock::{Condvar, Mutex};

/// A listening store.
pub(super) struct FakeStore {
    pub(super) port: u16,
    shared: Arc<FakeState>,
}

#[derive(Default)]
struct FakeState {
    content: Mutex<FakeContent>,
    changed: Condvar,
    /// Connections that are open.
    open: AtomicUsize,
}

#[derive(Default)]
struct FakeContent {
    entries: HashMap<String, Vec<u8>>,
    /// The arguments of each SET after key and value.
    options: HashMap<String, Vec<String>>,
    hangs: bool,
    /// Accepts no login.
    is_closed: bool,
    /// Replies with these errors to these commands.
    refusals: HashMap<String, String>,
    streams: Vec<TcpStream>,
    /// Connections since the start.
    connections: usize,
    /// Commands since the start, with the number of their connection.
    commands: Vec<(usize, String)>,
    /// What another client sets before the next SET.
    overtaking: Option<(String, Vec<u8>)>,
}

impl FakeStore {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<FakeState>::default();
        let state = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = state.clone();
                state.open.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    let _ = state.serve(&stream);
                    let _ = stream.shutdown(Shutdown::Both);
                    state.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { port, shared }
    }

    /// Keeps commands without a reply, or replies again.
    pub(super) fn hang(&self, hangs: bool) {
        self.shared.content.lock().hangs = hangs;
        self.shared.changed.notify_all();
    }

    /// Closes all connections.
    pub(super) fn cut(&self) {
        let streams = std::mem::take(&mut self.shared.content.lock().streams);
        streams.iter().for_each(|stream| _ = stream.shutdown(Shutdown::Both));
    }

    /// Closes new connections at once, or serves them again.
    pub(super) fn close(&self, is_closed: bool) {
        self.shared.content.lock().is_closed = is_closed;
    }

    /// Replies with an error to a command, or executes it again.
    pub(super) fn refuse(&self, command: &str, error: Option<&str>) {
        let mut content = self.shared.content.lock();
        match error {
            Some(error) => _ = content.refusals.insert(command.to_owned(), error.to_owned()),
            None => _ = content.refusals.remove(command),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.shared.content.lock().entries.get(key).cloned()
    }

    pub(super) fn put(&self, key: &str, value: Option<&[u8]>) {
        let mut content = self.shared.content.lock();
        match value {
            Some(value) => _ = content.entries.insert(key.to_owned(), value.to_owned()),
            None => _ = content.entries.remove(key),
        }
    }

    /// The arguments of the latest SET after key and value.
    pub(super) fn options(&self, key: &str) -> Vec<String> {
        self.shared.content.lock().options.get(key).cloned().unwrap_or_default()
    }

    /// Another client sets this just before the next SET arrives.
    pub(super) fn overtake(&self, key: &str, value: &[u8]) {
        self.shared.content.lock().overtaking = Some((key.to_owned(), value.to_owned()));
    }

    /// How many commands of this name have arrived.
    pub(super) fn count(&self, command: &str) -> usize {
        self.shared.content.lock().commands.iter().filter(|(_, name)| *name == command).count()
    }

    /// How many connections have sent commands of this name.
    pub(super) fn count_connections(&self, command: &str) -> usize {
        let content = self.shared.content.lock();
        let used = content.commands.iter().filter(|(_, name)| *name == command).map(|(number, _)| number);
        used.collect::<HashSet<_>>().len()
    }

    pub(super) fn open_connections(&self) -> usize {
        self.shared.open.load(SeqCst)
    }
}

impl FakeState {
    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        if self.content.lock().is_closed {
            return Ok(());
        }
        let number = {
            let mut content = self.content.lock();
            content.streams.push(stream.try_clone()?);
            content.connections += 1;
            content.connections
        };
        let mut reader = BufReader::new(stream);
        let mut writer = stream;
        while let Some(arguments) = read_command(&mut reader)? {
            let mut content = self.content.lock();
            content.commands.push((number, text(&arguments[0])));
            while content.hangs {
                self.changed.wait(&mut content);
            }
            let reply = content.execute(&arguments);
            drop(content);
            writer.write_all(&reply)?;
        }
        Ok(())
    }
}

impl FakeContent {
    fn execute(&mut self, arguments: &[Vec<u8>]) -> Vec<u8> {
        let command = text(&arguments[0]);
        if let Some(error) = self.refusals.get(&command) {
            return format!("-{error}\r\n").into_bytes();
        }
        let key = arguments.get(1).map(|key| text(key)).unwrap_or_default();
        match command.as_str() {
            "PING" | "AUTH" | "SELECT" => b"+OK\r\n".to_vec(),
            "GET" => match self.entries.get(&key) {
                Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
                None => b"$-1\r\n".to_vec(),
            },
            "SET" => {
                if let Some((key, value)) = self.overtaking.take() {
                    self.entries.insert(key, value);
                }
                let options: Vec<_> = arguments[3..].iter().map(|option| text(option)).collect();
                if options.contains(&"NX".to_owned()) && self.entries.contains_key(&key) {
                    return b"$-1\r\n".to_vec();
                }
                self.entries.insert(key.clone(), arguments[2].clone());
                self.options.insert(key, options);
                b"+OK\r\n".to_vec()
            }
            _ => b"-ERR unknown command\r\n".to_vec(),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `None` at the end of the connection.
fn read_command(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<Vec<u8>>>> {
    let number = |reader: &mut dyn BufRead| -> std::io::Result<Option<usize>> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        Ok(line.trim_end().get(1..).and_then(|number| number.parse().ok()))
    };
    let Some(count) = number(reader)? else { return Ok(None) };
    let mut arguments = Vec::new();
    for _ in 0..count {
        let Some(size) = number(reader)? else { return Ok(None) };
        let mut argument = vec![0; size + 2];
        reader.read_exact(&mut argument)?;
        argument.truncate(size);
        arguments.push(argument);
    }
    Ok(Some(arguments))
}
