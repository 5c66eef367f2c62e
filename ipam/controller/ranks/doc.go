// Package ranks gives each node's registration a small number, by which the nodes begin to look
// for blocks apart from each other. No right depends on it: two nodes may come to have
// one rank, or a node none, and then they meet more often.
package ranks
