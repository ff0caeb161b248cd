// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import HTTP
import Messaging
import SQLite
import Store

/// `/v1/backup`: the store as it is in one moment, while it is used.
final class BackupAPI {
  static let paths = ["/v1/backup"]
  /// Copied in one go; between two of them everything else has its turn.
  private static let pages: Int32 = 256
  private static let piece = 32 * 1024

  private let parts: ControlAPI.Parts
  private var backup: OnlineBackup?
  private var nextStep: LoopTimer?
  private var sending: RowStream?

  init(_ parts: ControlAPI.Parts) { self.parts = parts }

  private var location: String { parts.store.location + ".backup" }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    guard request.method == "GET", request.path == "/v1/backup" else { return false }
    guard backup == nil, sending == nil else {
      Answering.refuse(responder, .full("a backup is being made already"))
      return true
    }
    do throws(StoreError) {
      parts.store.settle()
      backup = try parts.store.beginBackup(to: location)
      responder.onGone = { [weak self] in self?.giveUp() }
      step(responder)
    } catch {
      Answering.refuse(responder, .store(error))
    }
    return true
  }

  /// Nobody waits for it any more.
  private func giveUp() {
    nextStep?.cancel()
    backup = nil
    removeFile()
  }

  private func removeFile() { for suffix in ["", "-wal", "-shm", "-journal"] { unlink(location + suffix) } }

  private func step(_ responder: HTTPResponder) {
    guard let backup else { return }
    do throws(SQLiteError) {
      // What waits for company is in the copy, and on disk.
      parts.store.commit(everything: true)
      guard try backup.step(pages: Self.pages) else {
        nextStep = parts.loop.schedule(after: .milliseconds(1)) { [weak self] in self?.step(responder) }
        return
      }
      self.backup = nil
      send(responder)
    } catch {
      giveUp()
      Answering.refuse(responder, .store(StoreError(error)))
    }
  }

  private func send(_ responder: HTTPResponder) {
    let file = open(location, O_RDONLY | O_CLOEXEC)
    // Nobody else needs its name; it is gone with the last byte, or with us.
    removeFile()
    guard file >= 0 else { return Answering.refuse(responder, .store(.unavailable("the backup cannot be read"))) }
    let owned = OwnedDescriptor(file)
    let stream = RowStream(responder, follow: false, headers: ["Content-Type": "application/vnd.sqlite3"]) {
      switch Descriptor.read(owned.number, most: Self.piece) {
      case .bytes(let bytes): (bytes, false)
      case .end: ([], true)
      case .wouldBlock: ([], false)
      case .failed(let error): throw error
      }
    }
    stream.onEnd = { [weak self] in self?.sending = nil }
    sending = stream
    stream.start()
  }
}
