// SPDX-License-Identifier: MIT

// meshpost-bench: measurements that need no second program. Prints one JSON object a line. Started by Benchmarks/run.
//
//   meshpost-bench frames FILE     decode the framed bytes of FILE repeatedly: frames a second
//   meshpost-bench store FOLDER    messages a second into the store, one and ten a commit, and bytes written
//   meshpost-bench ways FOLDER     the same without copies, and with 3 and 8 of each message, which are told
//   meshpost-bench fill FILE COUNT fill a store with COUNT indexed messages with a realistic distribution of words
//   meshpost-bench bluetooth ADDRESS PIN
//                                  send a frame of full length to a radio over Bluetooth, and print the answer

import Companion
import EventLoop
import Glibc
import JSON
import MeshCrypto
import SQLite
import Store
import Timing
import Transport

let loop = EventLoop()

func say(_ body: (inout JSONWriter) -> Void) {
  var json = JSONWriter()
  json.object(body)
  print(json.string)
}

func readFile(_ location: String) -> [UInt8] { Files.read(location, most: .max) ?? [] }

/// Feeds chunks of 4 KiB, as a port does.
@MainActor func decodeFrames(_ stream: [UInt8]) {
  var frames = 0
  var decoded = 0
  let start = loop.now
  while loop.now - start < .seconds(2) {
    var decoder = SerialDecoder(.fromRadio)
    var position = 0
    while position < stream.count {
      let now = MonotonicTime(nanoseconds: 0)
      decoder.append(stream[position..<min(position + 4096, stream.count)], now: now)
      position += 4096
      while let frame = decoder.next(now: now) {
        frames += 1
        if (try? RadioFrame(decoding: frame)) != nil { decoded += 1 }  // counted just below
      }
    }
  }
  let seconds = (loop.now - start).inSeconds
  say {
    $0.field("bench", "frames")
    $0.field("frames", frames)
    $0.field("decoded", decoded)
    $0.field("per_second", Int(Double(frames) / seconds))
  }
}

/// Bytes that this process has written to the disk.
func bytesWritten() -> Int64 {
  let text = String(decoding: readFile("/proc/self/io"), as: UTF8.self)
  let line = text.split(separator: "\n").first { $0.hasPrefix("write_bytes: ") }
  return line.flatMap { Int64($0.dropFirst(13)) } ?? 0
}

/// `copies`: by so many repeaters each message is heard, too.
@MainActor func storeMessages(_ folder: String, perCommit: Int, count: Int, copies: Int = 0) throws {
  let location = "\(folder)/bench-\(perCommit)-\(copies).db"
  let store = try Store(Store.Settings(location: location), clocks: loop.clocks)
  // Made before the clock runs: hearing copies is not storing them. The first ones come before the message is stored.
  let heard = (0..<copies).map { copy(by: UInt8($0), hops: 1 + $0 % 4) }
  let (first, later) = (Array(heard.prefix(1)), Array(heard.dropFirst()))
  let before = bytesWritten()
  let start = loop.now
  for number in 0..<count {
    let message = QueuedMessage.channel(
      ChannelMessage(
        snr: SNR(quarters: 39), slot: 0, path: ReceivedPath(raw: 2), senderTime: UInt32(number),
        text: Text("Walker: message \(number) of an ordinary length, as people write them")))
    store.write { store throws(SQLiteError) in
      let moment = Moment(milliseconds: 1, trusted: true)
      let id = try store.insert(message, at: moment, copies: first).id
      if copies > 0 { try store.tellCopies(later, of: .received(id), at: moment) }
    }
    if number % perCommit == perCommit - 1 { try store.commitNow() }
  }
  try store.commitNow()
  let seconds = (loop.now - start).inSeconds
  say {
    $0.field("bench", "store")
    $0.field("per_commit", perCommit)
    $0.field("copies", copies)
    $0.field("per_second", Int(Double(count) / seconds))
    $0.field("bytes_per_message", (bytesWritten() - before) / Int64(count))
  }
}

func copy(by repeater: UInt8, hops: Int) -> HeardCopy {
  let path = (0..<2 * hops).map { UInt8(truncatingIfNeeded: 7 * $0) &+ repeater }
  return HeardCopy(
    Packet(
      route: .flood, type: .groupText, pathLength: PathLength(raw: UInt8(1 << 6 | hops)), path: path, payload: []),
    snr: SNR(quarters: 20), rssi: -90, at: 1_795_000_000_000)
}

/// Fills a store. Few words are frequent and most are rare, as in real text.
@MainActor func fill(_ location: String, count: Int) throws {
  let store = try Store(
    Store.Settings(location: location, maxSize: 1 << 34, messagesMax: 100_000_000), clocks: loop.clocks)
  let frequent = "the on at ridge hello weather storm battery repeater anyone copy test message from hill lake".split(
    separator: " ")
  store.write { store throws(SQLiteError) in
    _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
    _ = try store.setChannel(Channel(slot: 1, name: "#weather", secret: .hashtag("#weather")))
  }
  var state: UInt64 = 1
  func random(_ limit: Int) -> Int {
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return Int(state >> 33) % limit
  }
  for number in 0..<count {
    var words = ["Walker \(random(300)):"]
    for _ in 0..<(3 + random(12)) {
      let rare = 20_000 / (1 + random(20_000))
      words.append(random(10) < 7 ? String(frequent[random(frequent.count)]) : "w\(rare == 1 ? random(20_000) : rare)")
    }
    let message = QueuedMessage.channel(
      ChannelMessage(
        snr: SNR(quarters: 39), slot: UInt8(random(2)), path: ReceivedPath(raw: 2), senderTime: UInt32(number),
        text: Text(words.joined(separator: " "))))
    store.write { store throws(SQLiteError) in
      _ = try store.insert(message, at: Moment(milliseconds: Int64(number) * 1000, trusted: true))
    }
    if number % 256 == 255 {
      store.write { store throws(SQLiteError) in _ = try store.indexMessages() }
      try store.commitNow()
    }
  }
  try store.commitNow()
  try store.checkpoint()
  say {
    $0.field("bench", "fill")
    $0.field("messages", count)
    // `try?`: the size is only information.
    $0.field("bytes", (try? store.size()) ?? 0)
  }
}

/// Sends a frame of 176 bytes: a channel message that the radio cuts. The answer proves that the whole frame arrived: for a part it has another
/// length.
@MainActor func sendLongFrame(_ address: String, _ pin: String) {
  let log = Log(level: .info)
  // `try?`: the program does not print the reason.
  guard let place = try? LinkAddress(parsing: "ble:\(address)") else { return print("not an address") }
  let options = BluetoothOptions(pin: BluetoothOptions.pin(pin))
  let link = Links.link(to: place, bluetooth: options, on: loop, log: log)
  let command = Command.sendChannelText(
    type: .plain, slot: 0, time: 1_795_000_000, text: Text(bytes: [UInt8](repeating: 0x6C, count: 169)))
  link.onEvent = { event in
    switch event {
    case .up: link.send(command.encode())
    case .down(let error): log.info("\(error)")
    case .frame(let answer):
      say {
        $0.field("bench", "bluetooth")
        $0.field("sent", command.encode().count)
        $0.field("answer", Hex.string(answer))
      }
      link.close()
      loop.schedule(after: .seconds(3)) { loop.stop() }
    case .bytes, .leftOver: break
    }
  }
  link.open()
  loop.run()
}

switch CommandLine.arguments.dropFirst().first {
case "bluetooth" where CommandLine.arguments.count == 4:
  sendLongFrame(CommandLine.arguments[2], CommandLine.arguments[3])
case "frames": decodeFrames(readFile(CommandLine.arguments.last ?? ""))
case "store":
  let folder = CommandLine.arguments.last ?? "."
  try storeMessages(folder, perCommit: 1, count: 5000)
  try storeMessages(folder, perCommit: 10, count: 20000)
case "ways":
  let folder = CommandLine.arguments.last ?? "."
  for copies in [0, 3, 8] {
    try storeMessages(folder, perCommit: 1, count: 5000, copies: copies)
    try storeMessages(folder, perCommit: 10, count: 20000, copies: copies)
  }
case "fill" where CommandLine.arguments.count == 4:
  try fill(CommandLine.arguments[2], count: Int(UInt32(CommandLine.arguments[3]) ?? 0))
default:
  print("usage: meshpost-bench fill FILE COUNT | frames FILE | store FOLDER | ways FOLDER | bluetooth ADDRESS PIN")
  exit(EX_USAGE)
}
