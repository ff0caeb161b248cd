// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import EventLoop
import Glibc
import UntrustedText

/// Reads whole files, up to a limit.
enum InputFile {
  private static let sizeLimit = 64 << 20

  static func read(_ location: String) throws -> [UInt8] {
    let descriptor = open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw Failure.file(location) }
    defer { close(descriptor) }
    guard let bytes = rest(of: descriptor) else { throw Failure.file(location) }
    return bytes
  }

  /// The rest of the file; `nil`: reading fails, or it is too large.
  static func rest(of descriptor: Int32) -> [UInt8]? {
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65536)
    while bytes.count <= sizeLimit {
      let count = Glibc.read(descriptor, &buffer, buffer.count)
      if count < 0, errno == EINTR { continue }
      guard count >= 0 else { return nil }
      if count == 0 { return bytes }
      bytes += buffer.prefix(count)
    }
    errno = EFBIG
    return nil
  }

  /// The whole file; `nil`: it does not exist.
  static func text(_ location: String) throws -> String? {
    guard exists(location) else { return nil }
    return String(decoding: try read(location), as: UTF8.self)
  }

  /// The first line; `nil`: the file does not exist, or the line is empty.
  static func firstLine(_ location: String) throws -> String? {
    guard exists(location) else { return nil }
    return try string(read(location), from: location).lines.first.flatMap { $0.isEmpty ? nil : $0 }
  }

  private static func exists(_ location: String) -> Bool { access(location, F_OK) == 0 || errno != ENOENT }

  /// The bytes as a text that is sent or kept. Bytes that are not UTF-8 are refused.
  static func string(_ bytes: [UInt8], from place: String) throws -> String {
    if let broken = BrokenText(bytes, from: place) { throw broken }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// The content of a file with certificates or keys. What stands around its blocks is a comment in any encoding: without UTF-8, only the blocks count.
  static func pem(_ bytes: [UInt8], from place: String) throws -> String {
    guard BrokenText(bytes, from: place) != nil else { return String(decoding: bytes, as: UTF8.self) }
    var (blocks, isInside) = ([UInt8](), false)
    for line in bytes.split(separator: UInt8(ascii: "\n")) {
      isInside = isInside || line.starts(with: "-----BEGIN ".utf8)
      if isInside {
        blocks += line
        blocks.append(UInt8(ascii: "\n"))
      }
      if line.starts(with: "-----END ".utf8) { isInside = false }
    }
    return try string(blocks.isEmpty ? bytes : blocks, from: place)
  }
}

/// Standard output, or a file that gets its name when it is complete. It writes every byte unchanged, except to a terminal.
final class OutputFile {
  private let descriptor: Int32
  private let location: String?
  /// The location, or the file behind it if that is a link.
  private let target: String?
  /// Its name until it is complete, which no other file has; the target, if it grows.
  private let part: String
  private var pending: [UInt8] = []
  private var isClosed = false
  var isTerminal: Bool { location == nil && Console.isTerminal }

  /// `grows`: the file has its final name from the beginning, because it grows for hours. `isSecret`: only the owner may read it. `replaces`: whether
  /// it may replace an existing file, which the user has named; `nil`: the place is this program's own choice. A pipe and a device lose nothing, and keep their place in the folder; a link keeps its own.
  init(_ location: String?, grows: Bool = false, isSecret: Bool = false, replaces: Bool? = nil) throws {
    // Its part would be a file of the name ".part".
    if location == "" { throw Failure.file("") }
    // Opened anew, a file behind it would lose what it has.
    let named = location.flatMap { OutputFile.isStandardOutput($0) ? nil : $0 }
    let there = named.flatMap { OutputFile.facts(of: $0) }.map { $0.st_mode & S_IFMT }
    let isStream = there == S_IFIFO || there == S_IFCHR
    // A disk or a socket must not become a file, and a disk must not lose what it has.
    if let named, let there, !isStream, there != S_IFREG {
      let words = there == S_IFDIR ? "is a folder" : "is no file"
      throw Failure.say("\(named) \(words): name a file to write", EX_CANTCREAT)
    }
    if replaces != nil, !isStream, let named { try GatewayFiles.check(named) }
    if replaces == false, let named, there != nil, !isStream {
      throw Failure.say("\(named) exists already: --force replaces it", EX_CANTCREAT)
    }
    self.location = named
    let isPart = !grows && !isStream
    target = try isPart ? named.map { try OutputFile.behind($0) } : named
    guard let named, let target else {
      (descriptor, part) = (1, "")
      return
    }
    let mode: mode_t = isSecret ? 0o600 : 0o644
    if isPart {
      (descriptor, part) = try OutputFile.begin(target, mode, named)
    } else {
      part = target
      descriptor = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
      guard descriptor >= 0 else { throw Failure.file(named) }
    }
  }

  /// A new file beside the target: another program may be writing the same target, and a file that is there is somebody's.
  private static func begin(_ target: String, _ mode: mode_t, _ named: String) throws -> (Int32, String) {
    for _ in 0..<tries {
      let part = partName(target, UInt32.random(in: .min ... .max))
      let descriptor = try Unfinished.noting { () throws -> (Int32, location: String) in
        let descriptor = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)
        guard descriptor >= 0 || errno == EEXIST else { throw Failure.file(named) }
        return (descriptor, descriptor >= 0 ? part : "")
      }
      guard descriptor >= 0 else { continue }
      // It tells that somebody is writing the file. Without locks on this file system, nobody removes it early.
      flock(descriptor, LOCK_EX | LOCK_NB)
      return (descriptor, part)
    }
    errno = EEXIST
    throw Failure.file(named)
  }

  private static let tries = 16
  private static let digits = 8

  private static func partName(_ target: String, _ number: UInt32) -> String {
    let hex = String(number, radix: 16)
    return "\(target).\(String(repeating: "0", count: digits - hex.utf8.count))\(hex).part"
  }

  /// The name that the file would get; `nil`: the name is of no incomplete file of this program's.
  static func whole(ofPart name: String) -> String? {
    let parts = name.pieces(at: ".")
    guard parts.count > 2, parts[parts.count - 1].isExactly("part") else { return nil }
    let number = parts[parts.count - 2]
    guard number.utf8.count == digits, let value = UInt32(number, radix: 16) else { return nil }
    let whole = parts.dropLast(2).joined(separator: ".")
    return partName(whole, value).isExactly(name) ? whole : nil
  }

  /// Whether it is the stream that is standard output, by whatever name.
  private static func isStandardOutput(_ location: String) -> Bool {
    if ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].contains(where: { location.isExactly($0) }) { return true }
    var own = stat()
    guard fstat(1, &own) == 0, let there = facts(of: location), there.st_mode & S_IFMT != S_IFREG else { return false }
    return there.st_dev == own.st_dev && there.st_ino == own.st_ino
  }

  private static func facts(of location: String) -> stat? {
    var facts = stat()
    return stat(location, &facts) == 0 ? facts : nil
  }

  /// The file behind a link.
  private static func behind(_ location: String) throws -> String {
    var facts = stat()
    guard lstat(location, &facts) == 0, facts.st_mode & S_IFMT == S_IFLNK else { return location }
    // The system follows no link that another user has left in a folder for all.
    let descriptor = open(location, O_WRONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw Failure.file(location) }
    Glibc.close(descriptor)
    return Folder.resolved(location)
  }

  // An incomplete file is no backup.
  deinit {
    guard !isClosed, let target, !part.isExactly(target) else { return }
    unlink(part)
    Unfinished.forget(part)
    Glibc.close(descriptor)
  }

  /// Says what was written. Within what goes to standard output it would be a part of that.
  func tell(_ words: String) { if location == nil { Console.error(words) } else { print(words) } }

  /// Writes bytes. A terminal gets no control characters; a file or a pipe gets every byte.
  func write(_ text: String) throws { try write(Array((isTerminal ? Visible.page(text) : text).utf8)) }

  func write(_ bytes: [UInt8]) throws {
    pending += bytes
    if pending.count > 65536 { try flush() }
  }

  func flush() throws {
    var rest = pending[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { throw Failure.file(location ?? "standard output") }
      rest = rest.dropFirst(count)
    }
    pending.removeAll(keepingCapacity: true)
  }

  func close() throws {
    try flush()
    guard let location, let target else { return }
    // A pipe or a device needs no sync.
    let isSynced = fsync(descriptor) == 0 || errno == EINVAL
    // Its lock must not end before it has its name.
    guard isSynced, part.isExactly(target) || rename(part, target) == 0 else { throw Failure.file(location) }
    isClosed = true
    Unfinished.forget(part)
    guard Glibc.close(descriptor) == 0 else { throw Failure.file(location) }
  }
}

/// The option `--output`; without it, a command writes to standard output.
struct OutputOption: ParsableArguments {
  @Option(
    name: .customLong("output"),
    help: ArgumentHelp("Write to this file instead of standard output.", valueName: "file")) var file: String?
  @Flag(help: "Replace the file if it exists.") var force = false
}

extension OutputFile {
  /// Writes the whole file or nothing, also in a power failure.
  @discardableResult
  static func write(
    _ text: String, to location: String?, isSecret: Bool = false, replaces: Bool? = nil
  ) throws -> OutputFile {
    let file = try OutputFile(location, isSecret: isSecret, replaces: replaces)
    try file.write(text)
    try file.close()
    return file
  }
}

enum Folder {
  /// The folder of `location`.
  static func of(_ location: String) -> String {
    // By scalars: a name may begin with an accent.
    guard let slash = location.unicodeScalars.lastIndex(of: "/") else { return "." }
    return slash == location.startIndex ? "/" : String(location[..<slash])
  }

  /// Creates a folder for the owner only, with its parents.
  static func make(_ location: String) throws {
    if mkdir(location, 0o700) == 0 || errno == EEXIST { return }
    guard errno == ENOENT, location.has("/") else { throw Failure.file(location) }
    try make(of(location))
    guard mkdir(location, 0o700) == 0 || errno == EEXIST else { throw Failure.file(location) }
  }

  /// Runs `work` with a temporary folder inside `location`, for the owner only. It deletes the folder and its files afterwards.
  static func temporary<Value>(in location: String, _ work: (String) throws -> Value) throws -> Value {
    let folder = try Unfinished.noting { () throws -> (String, location: String) in
      var template = Array("\(location)/\(temporaryStart)XXXXXX".utf8CString)
      guard mkdtemp(&template) != nil else { throw Failure.file(location) }
      // The returned pointer is not usable: it points into `template`, which may be gone after the call.
      let folder = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
      return (folder, location: folder)
    }
    // Whoever looks for what earlier runs have left lets this one be.
    let lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    flock(lock, LOCK_EX | LOCK_NB)
    defer {
      for name in Files.names(in: folder) { unlink("\(folder)/\(name)") }
      rmdir(folder)
      Unfinished.forget(folder)
      if lock >= 0 { close(lock) }
    }
    return try work(folder)
  }

  private static let temporaryStart = ".meshpost-"

  static func isTemporary(_ name: String) -> Bool {
    name.begins(with: temporaryStart) && name.utf8.count == temporaryStart.utf8.count + 6
  }

  /// Follows symbolic links. Without a file there, it returns the location itself.
  static func resolved(_ location: String) -> String {
    guard let end = realpath(location, nil) else { return location }
    defer { free(end) }
    return String(cString: end)
  }
}
