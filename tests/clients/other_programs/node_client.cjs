// Clients in JavaScript. Run by tests (clients_of_others.py); NODE_PATH is the folder of the packages.
//
//   node node_client.cjs upload axios|fetch URL BYTES TIMES    uploads, one after the other; a line for each answer
//   node node_client.cjs infer axios|fetch URL                 asks the model add_sub with binary tensors
//   node node_client.cjs grpc ADDRESS PROTO                    asks add_sub, and then streamer over a stream
//   node node_client.cjs versions
"use strict";

const libraries = {
  axios: async (url, body, headers) => {
    const axios = require("axios");
    const options = { headers, maxBodyLength: Infinity, responseType: "arraybuffer", validateStatus: () => true };
    const answer = await axios.post(url, body, options);
    const header = answer.headers["inference-header-content-length"];
    return { status: answer.status, bytes: answer.data, header };
  },
  fetch: async (url, body, headers) => {
    const answer = await fetch(url, { method: "POST", headers, body });
    const header = answer.headers.get("inference-header-content-length");
    return { status: answer.status, bytes: Buffer.from(await answer.arrayBuffer()), header };
  },
};

async function upload(library, url, bytes, times) {
  const body = Buffer.alloc(Number(bytes));
  for (let time = 0; time < Number(times); time++) {
    try {
      const answer = await libraries[library](url, body, {});
      console.log(answer.status, answer.bytes.toString());
    } catch (error) {
      console.log("lost", JSON.stringify(String(error.cause ?? error)));
    }
  }
}

const first = Int32Array.from({ length: 16 }, (_, index) => index);
const second = new Int32Array(16).fill(1000);

async function infer(library, url) {
  const row = { datatype: "INT32", shape: [1, 16], parameters: { binary_data_size: 64 } };
  const inputs = [{ name: "INPUT0", ...row }, { name: "INPUT1", ...row }];
  const outputs = [{ name: "OUTPUT0", parameters: { binary_data: true } }];
  const head = Buffer.from(JSON.stringify({ inputs, outputs }));
  const body = Buffer.concat([head, Buffer.from(first.buffer), Buffer.from(second.buffer)]);
  const headers = { "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": String(head.length) };
  const { status, bytes, header } = await libraries[library](`${url}/v2/models/add_sub/infer`, body, headers);
  if (status !== 200) throw new Error(`${status} ${bytes}`);
  print(bytes.subarray(Number(header)));
}

function print(bytes) {
  console.log(Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readInt32LE(4 * index)).join());
}

async function askOverGrpc(address, proto) {
  const grpc = require("@grpc/grpc-js");
  const definition = require("@grpc/proto-loader").loadSync(proto, { keepCase: true });
  const { GRPCInferenceService } = grpc.loadPackageDefinition(definition).inference;
  const client = new GRPCInferenceService(address, grpc.credentials.createInsecure());
  const row = { datatype: "INT32", shape: [1, 16] };
  const request = {
    model_name: "add_sub",
    inputs: [{ name: "INPUT0", ...row }, { name: "INPUT1", ...row }],
    outputs: [{ name: "OUTPUT0" }],
    raw_input_contents: [Buffer.from(first.buffer), Buffer.from(second.buffer)],
  };
  await new Promise((done, fail) => {
    client.ModelInfer(request, (error, answer) => (error ? fail(error) : done(print(answer.raw_output_contents[0]))));
  });
  const stream = client.ModelStreamInfer();
  const ended = new Promise((done, fail) => stream.on("end", done).on("error", fail));
  stream.on("data", ({ error_message, infer_response }) => {
    if (error_message) console.log(error_message);
    else for (const bytes of infer_response.raw_output_contents) print(bytes);
  });
  const count = { name: "N", datatype: "INT32", shape: [1], contents: { int_contents: [3] } };
  stream.write({ model_name: "streamer", inputs: [count] });
  stream.end();
  await ended;
  client.close();
}

function versions() {
  const { readFileSync } = require("fs");
  const { join } = require("path");
  const found = { node: process.versions.node, undici: process.versions.undici };
  for (const name of ["axios", "@grpc/grpc-js", "@grpc/proto-loader"]) {
    found[name] = JSON.parse(readFileSync(join(process.env.NODE_PATH, name, "package.json"))).version;
  }
  console.log(JSON.stringify(found));
}

const [what, ...rest] = process.argv.slice(2);
({ upload, infer, grpc: askOverGrpc, versions })[what](...rest);
