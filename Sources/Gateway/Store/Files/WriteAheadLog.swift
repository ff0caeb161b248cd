// SPDX-License-Identifier: MIT

import Glibc

/// Finds transactions in SQLite's write-ahead log that SQLite will not read.
///
/// SQLite reads frames up to the first with a wrong checksum, and ignores the rest silently. A power cut causes such a
/// frame only within the last transaction, because each is on disk before the next begins. Complete transactions after
/// it mean that the medium has lost data. What is broken may be of any length, and no longer look like a frame; what follows it has the salts of the
/// header, which no earlier generation of the log has. Source: sqlite.org/fileformat2.html, "The Write-Ahead Log".
///
///     header, 32 bytes: magic, version, page size, checkpoint, salt (2), checksum (2)      big-endian words
///     frame: page number, pages of the database after a commit or 0, salt (2), checksum (2), page
enum WriteAheadLog {
  static let headerSize = 32
  private static let frameHeaderSize = 24
  /// A log with a transaction has at least so many bytes.
  static let leastSize = headerSize + frameHeaderSize + Int(Store.pageSize)

  /// The least number of lost transactions; `nil`: none.
  static func lostTransactions(_ location: String) -> Int? {
    let descriptor = open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    guard let header = read(descriptor, headerSize) else { return nil }
    let words = header.words
    let pageSize = Int(words[2] == 1 ? 65536 : words[2])
    let isHeader = words[0] | 1 == 0x377F_0683 && (512...65536).contains(pageSize) && pageSize & (pageSize - 1) == 0
    // The header is unreadable, but the file is longer than a header.
    guard isHeader else { return read(descriptor, frameHeaderSize) == nil ? nil : 1 }
    var sum = Checksum(isBigEndian: words[0] & 1 == 1)
    sum.add(header.bytes[..<24])
    var scan = Scan(salt: (words[4], words[5]), isBroken: !sum.has(words[6], words[7]))
    // If the header itself is wrong, the first frame shows whether its checksum started from the one in the header.
    sum.set(words[6], words[7])
    while let frame = read(descriptor, frameHeaderSize + pageSize) {
      scan.take(frame, &sum)
    }
    return scan.lost
  }

  private struct Block {
    let bytes: [UInt8]

    /// The first 32 bytes at most, as big-endian words.
    var words: [UInt32] {
      stride(from: 0, to: min(bytes.count, 32), by: 4).map { place in
        bytes[place..<place + 4].reduce(0) { $0 << 8 | UInt32($1) }
      }
    }
  }

  /// Reads exactly `count` bytes; `nil`: there are fewer.
  private static func read(_ descriptor: Int32, _ count: Int) -> Block? {
    var bytes = [UInt8](repeating: 0, count: count)
    var done = 0
    while done < count {
      let got = bytes.withUnsafeMutableBytes { Glibc.read(descriptor, $0.baseAddress.map { $0 + done }, count - done) }
      guard got > 0 else { return nil }
      done += got
    }
    return Block(bytes: bytes)
  }

  private struct Scan {
    let salt: (UInt32, UInt32)
    var isBroken: Bool
    /// The header is wrong, and the next frame is the first: it may show that the log is ours.
    var wantsProof: Bool
    /// The broken frame ends a transaction, so another transaction follows.
    var brokeAtCommit = false
    var framesAfter = 0
    var commitsAfter = 0

    init(salt: (UInt32, UInt32), isBroken: Bool) {
      self.salt = salt
      self.isBroken = isBroken
      wantsProof = isBroken
    }

    mutating func take(_ frame: Block, _ sum: inout Checksum) {
      let words = frame.words
      let isOurs = words[2] == salt.0 && words[3] == salt.1
      if isBroken, !wantsProof {
        // It is of an earlier generation, or lost, too: ours may follow.
        guard isOurs else { return }
        framesAfter += 1
        if words[1] != 0 { commitsAfter += 1 }
        return
      }
      sum.add(frame.bytes[..<8])
      sum.add(frame.bytes[24...])
      let isWhole = sum.has(words[4], words[5])
      if wantsProof {
        wantsProof = false
        // After a header torn by a power cut, the frames belong to an earlier generation.
        if isWhole || isOurs { (brokeAtCommit, framesAfter) = (true, 1) }
        return
      }
      if isWhole, isOurs { return }
      // If both its salt and its content are wrong, nothing in it says what it was: where the log ends, it is of an earlier generation.
      (isBroken, brokeAtCommit) = (true, (isWhole || isOurs) && words[1] != 0)
    }

    /// A torn transaction has one commit frame after the break, its own.
    var lost: Int? {
      guard isBroken else { return nil }
      if brokeAtCommit { return framesAfter > 0 ? commitsAfter + 1 : nil }
      return commitsAfter > 1 ? commitsAfter : nil
    }
  }

  /// SQLite's checksum over pairs of words.
  private struct Checksum {
    let isBigEndian: Bool
    private var (first, second): (UInt32, UInt32) = (0, 0)

    init(isBigEndian: Bool) { self.isBigEndian = isBigEndian }

    mutating func set(_ first: UInt32, _ second: UInt32) { (self.first, self.second) = (first, second) }
    func has(_ first: UInt32, _ second: UInt32) -> Bool { (self.first, self.second) == (first, second) }

    mutating func add(_ bytes: ArraySlice<UInt8>) {
      bytes.withUnsafeBytes { raw in
        for place in stride(from: 0, to: raw.count - 7, by: 8) {
          let one = raw.loadUnaligned(fromByteOffset: place, as: UInt32.self)
          let two = raw.loadUnaligned(fromByteOffset: place + 4, as: UInt32.self)
          first = first &+ (isBigEndian ? UInt32(bigEndian: one) : UInt32(littleEndian: one)) &+ second
          second = second &+ (isBigEndian ? UInt32(bigEndian: two) : UInt32(littleEndian: two)) &+ first
        }
      }
    }
  }
}
