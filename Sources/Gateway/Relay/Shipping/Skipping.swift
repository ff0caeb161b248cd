// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// An event that a server never takes and never refuses, such as one over which it always fails with 500: no count of failures proves it bad, because
/// a server in trouble fails over any. An operator who knows better sets it aside.
///
/// The operator may be wrong, so the server is asked once more: another event must pass, and then this one must fail again, by the server's own
/// answer. `Suspicion` decides that. If only bad events wait, none passes: then the operator names the event by its seq, and it alone must fail again.
/// If the gateway is killed in between, nothing is lost: the event is still the next one, and the other event is sent again, too.
extension Upstream {
  /// What has become of the event.
  public enum Skipped: Equatable, Sendable {
    /// It is a dead letter, on disk.
    case setAside(seq: Int64)
    /// The server has taken it after all.
    case taken(seq: Int64)
    /// The last try had so many events. From now on one is sent at a time, until it is known which one fails.
    case isOneOf(Int)
    /// The operator has named another event than the one that failed at the last try.
    case isAnother(failed: Int64)
    /// Another event fails, too: the server may be in trouble.
    case othersFail(seq: Int64, reason: String)
    /// Nothing shows that this event is the reason.
    case unproven(reason: String)
    /// The server has taken all that it was sent.
    case nothing
  }

  /// The time limit for the server's answers.
  private static let skippingPatience: Duration = .seconds(50)

  func noteUntaken(_ verdict: Verdict, _ batch: Batch, _ lane: Lane) {
    guard let first = batch.events.first?.seq else { return }
    switch verdict {
    case .retry(let reason, _), .failing(let reason, _), .busy(let reason, _), .hungUp(let reason),
      .refused(_, let reason):
      untaken = Untaken(
        lane: lane, first: first, count: batch.events.count, reason: reason, isAnswer: verdict.isAnswer,
        epoch: store.epoch)
    case .acknowledged(let through):
      if let untaken, untaken.lane == lane, untaken.first <= through { self.untaken = nil }
    case .diverged, .stopped: break
    }
  }

  /// The server itself failed over an event at the last try.
  var maySkip: Bool {
    untaken.map { $0.isAnswer && $0.epoch == store.epoch && journal.lanes[$0.lane].taken < $0.first } ?? false
  }

  /// Makes the event over which the server failed at the last try a dead letter, if it was sent alone and is the reason; the next one is sent at once.
  /// `named`: the operator takes this event for the reason, even if no other passes.
  public func skip(_ named: Int64? = nil) async -> Skipped {
    guard let untaken, !isClosed, untaken.epoch == store.epoch,
      journal.lanes[untaken.lane].taken < untaken.first
    else { return .nothing }
    guard untaken.isAnswer else { return .unproven(reason: "the last try got no answer about it: \(untaken.reason)") }
    guard untaken.count == 1 else {
      shipment.sendsOne()
      resume()
      return .isOneOf(untaken.count)
    }
    guard named ?? untaken.first == untaken.first else { return .isAnother(failed: untaken.first) }
    guard !isPaused else { return .unproven(reason: "the upstream is paused, and the server must be asked once more") }
    guard skipping == nil else { return .unproven(reason: "the server is being asked about it already") }
    let (lane, answer) = (untaken.lane, Promise<Skipped>())
    skipping = Skipping(seq: untaken.first, lane: lane, answer: answer)
    defer { skipping = nil }
    journal.lanes[lane].suspicion.askedToSkip(untaken.first, isNamed: named != nil)
    resume()
    // `try?`: the operator has gone, and nothing is skipped unless it is being written.
    var skipped = (try? await answer.value(within: Self.skippingPatience, on: loop)) ?? nil
    journal.lanes[lane].suspicion.answeredOperator()
    // `try?`: the same.
    if skipped == nil, skipping?.isBuried == true { skipped = try? await answer.value() }
    return skipped ?? .unproven(reason: "the server did not answer within \(Int(Self.skippingPatience.inSeconds)) s")
  }

  /// Tells the operator when it is known what becomes of the event. `verdict`: on this batch or, without one, on the connection; `nil`: the lane's
  /// position may have changed.
  func answerSkipping(_ verdict: Verdict?, of batch: Batch? = nil) {
    guard let skipping else { return }
    let seq = skipping.seq
    if journal.lanes[skipping.lane].taken >= seq {
      skipping.answer.keep(skipping.isBuried ? .setAside(seq: seq) : .taken(seq: seq))
    } else if !skipping.isBuried, let verdict, let reason = verdict.trouble {
      let isOther = verdict.isAnswer && batch?.events.first?.seq != seq
      skipping.answer.keep(isOther ? .othersFail(seq: seq, reason: reason) : .unproven(reason: reason))
    }
  }

  /// The upstream does not go on meanwhile.
  func stopSkipping(_ reason: String) {
    if let skipping, !skipping.isBuried { skipping.answer.keep(.unproven(reason: reason)) }
  }
}

/// An operator's wish to skip an event, until it is answered.
struct Skipping {
  let seq: Int64
  let lane: Lane
  let answer: Promise<Upstream.Skipped>
  /// It is being written as a dead letter.
  var isBuried = false
}
